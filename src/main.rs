//! The command `tova-bench`.

fn main() -> std::process::ExitCode {
    // candle asks for the number of cores at every product, and without these two variables finds it in
    // /proc/cpuinfo each time; and its elementwise operations would spin on a pool of their own beside ours.
    for (name, value) in [("RAYON_NUM_THREADS", tova_bench::cli::cores()), ("CANDLE_NUM_THREADS", 1)] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread has been started yet, so nobody reads the environment meanwhile.
            #[expect(unsafe_code)]
            unsafe {
                std::env::set_var(name, value.to_string());
            }
        }
    }
    tova_bench::cli::main()
}
