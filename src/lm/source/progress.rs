//! Who is told about downloads, in terms that know neither a terminal nor the hub's client.

/// Who is told about downloads. One file at a time: `start`, any number of `advance`, `finish`, also after a failure.
pub trait DownloadProgress {
    fn start(&self, name: &str, bytes: u64);
    fn advance(&self, bytes: u64);
    fn finish(&self);
    /// Something the user should know that is no error: the cache stands in for the hub, another process downloads.
    fn note(&self, _message: &str) {}
}

/// Nobody is told.
impl DownloadProgress for () {
    fn start(&self, _name: &str, _bytes: u64) {}
    fn advance(&self, _bytes: u64) {}
    fn finish(&self) {}
}

/// The client starts a file twice and does not finish one that fails; ours are started and finished once.
pub(super) struct Meter<'a> {
    progress: &'a dyn DownloadProgress,
    started: bool,
}

impl<'a> Meter<'a> {
    pub(super) fn new(progress: &'a dyn DownloadProgress) -> Self {
        Meter { progress, started: false }
    }
}

impl hf_hub::api::Progress for Meter<'_> {
    fn init(&mut self, size: usize, name: &str) {
        if !self.started {
            self.progress.start(name, size as u64);
        }
        self.started = true;
    }

    fn update(&mut self, bytes: usize) {
        self.progress.advance(bytes as u64);
    }

    fn finish(&mut self) {}
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        if self.started {
            self.progress.finish();
        }
    }
}
