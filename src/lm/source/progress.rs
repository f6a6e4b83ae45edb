//! What a download reports, in terms that know neither a terminal nor HTTP.

/// Receives the progress of downloads, one file at a time: `start`, any number of `advance`, then `finish`, also
/// after a failure.
pub trait DownloadProgress {
    fn start(&self, name: &str, bytes: u64);
    fn advance(&self, bytes: u64);
    fn finish(&self);
    /// Something the user should know that is no error: the cache is used instead of the hub, another process
    /// downloads.
    fn note(&self, _message: &str) {}
}

/// Ignores everything.
impl DownloadProgress for () {
    fn start(&self, _name: &str, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn finish(&self) {}
}
