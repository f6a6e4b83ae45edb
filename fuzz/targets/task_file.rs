#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tova_bench_fuzz::read("task_file", input));
