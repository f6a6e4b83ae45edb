//! The command `tova-bench`.

fn main() -> std::process::ExitCode {
    // Our threads each take texts, or rows of one text; a product inside candle is to use the thread it is in. And
    // without these variables candle looks up the number of cores in /proc/cpuinfo at every product.
    for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
        // SAFETY: no other thread has been started yet, so nobody reads the environment meanwhile.
        #[expect(unsafe_code)]
        unsafe {
            std::env::set_var(name, "1");
        }
    }
    tova_bench::cli::main()
}
