//! `strftime_now` of transformers, on a fixed date: two runs on different days give the same prompt.

use chrono::NaiveDate;
use minijinja::Error;

use super::refused;

/// Codes of C that Python passes on and chrono writes in the same way.
const CODES: &str = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";

/// Writes 26 July 2024 at midnight in a format of Python's `strftime`.
///
/// # Errors
///
/// A code that has no meaning there.
pub fn strftime_now(format: &str) -> Result<String, Error> {
    let now = NaiveDate::from_ymd_opt(2024, 7, 26).and_then(|date| date.and_hms_opt(0, 0, 0)).unwrap_or_default();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next();
        let flag = code.filter(|c| matches!(c, '-' | '_' | '0' | '^'));
        if flag.is_some() {
            code = chars.next();
        }
        match code {
            Some('f') => out += "000000",
            // The date has no zone.
            Some('z' | 'Z') => {}
            Some(code) if CODES.contains(code) => {
                let padding = flag.filter(|flag| *flag != '^').map_or(String::new(), String::from);
                let text = now.format(&format!("%{padding}{code}")).to_string();
                out += &if flag == Some('^') { text.to_uppercase() } else { text };
            }
            code => {
                let code = code.map_or(String::new(), String::from);
                return Err(refused(format!("strftime_now does not know `%{code}`")));
            }
        }
    }
    Ok(out)
}
