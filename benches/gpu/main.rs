//! How fast a GPU is: its products, copies and launches (`card`), or each kernel of attention (`kernels`), as one JSON object.
//!
//! `cargo bench --features cuda --bench gpu -- kernels [cuda:N]`; with `--features emulate` the device `emulated` works without a GPU.

#[cfg(any(feature = "cuda", feature = "emulate"))]
fn main() -> anyhow::Result<()> {
    use anyhow::ensure;
    use tova_bench::lm::{DeviceChoice, device_name};

    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let what = words.first().map_or("card", String::as_str);
    ensure!(["card", "kernels"].contains(&what), "`{what}` cannot be measured: use card or kernels");
    let device: DeviceChoice =
        words.get(1).map_or("cuda", String::as_str).parse().map_err(|error: String| anyhow::anyhow!("{error}"))?;
    let device = device.open()?;
    let measured = device.benchmark(what == "kernels")?;
    println!("{}", serde_json::json!({ "device": device_name(&device), "measured": measured }));
    Ok(())
}

#[cfg(not(any(feature = "cuda", feature = "emulate")))]
fn main() {
    eprintln!("build it with --features cuda");
}
