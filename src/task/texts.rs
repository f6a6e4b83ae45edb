//! Texts as they come: files of UTF-8.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

/// A text file.
///
/// # Errors
/// A file that cannot be read, is empty, or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the text {}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{} is not UTF-8: byte {at} belongs to no character; convert the file to UTF-8", path.display())
    })?;
    ensure!(!text.trim().is_empty(), "{} is an empty text; remove it from the folder or fill it", path.display());
    Ok(text)
}
