//! The models in memory, each loaded once for all jobs that use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Result;

use crate::lm::LanguageModel;

/// The models in use, by revision, type and device.
#[derive(Default)]
pub(super) struct Models(Mutex<BTreeMap<String, Arc<Mutex<Weak<LanguageModel>>>>>);

impl Models {
    /// Gives a job the model of that name, and loads it if no job has it. The model that the job held before is dropped
    /// first. Jobs that need the same model wait for the one that loads it.
    pub fn take(
        &self,
        key: &str,
        held: &mut Option<Arc<LanguageModel>>,
        load: impl FnOnce() -> Result<LanguageModel>,
    ) -> Result<Arc<LanguageModel>> {
        let slots = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots().entry(key.to_string()).or_default());
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let model = match slot.upgrade() {
            Some(model) => model,
            None => {
                *held = None;
                let model = Arc::new(load()?);
                *slot = Arc::downgrade(&model);
                model
            }
        };
        *held = Some(Arc::clone(&model));
        Ok(model)
    }
}
