//! The command `tova-bench`.

fn main() -> std::process::ExitCode {
    // This program has its own threads, so candle must compute each product in the calling thread. Without these variables
    // candle would also read the number of cores from /proc/cpuinfo at every product.
    for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
        // SAFETY: no other thread has been started yet that could read the environment.
        #[expect(unsafe_code)]
        unsafe {
            std::env::set_var(name, "1");
        }
    }
    std::process::ExitCode::from(tova_bench::cli::run(std::env::args_os()))
}
