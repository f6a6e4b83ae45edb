//! Keeps threads awake between short pieces of work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a thread stays awake without work. It must not stay for ever: it may have begun to do so while it waited for a
/// piece of another text, and the work that it stays awake for may wait for the rest of that piece.
const IDLE: Duration = Duration::from_millis(20);

/// Does many short pieces of work while the threads that share it stay awake: waking them takes as long as a piece. Use it only for
/// one text at a time, because it waits for all threads.
pub(super) fn awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    struct Taken;
    impl Drop for Taken {
        fn drop(&mut self) {
            TAKEN.store(false, Ordering::Release);
        }
    }
    if TAKEN.swap(true, Ordering::Acquire) {
        return work();
    }
    let _taken = Taken; // until all threads have left
    let done = &AtomicBool::new(false);
    rayon::scope(|scope| {
        let own = rayon::current_thread_index();
        scope.spawn_broadcast(move |_, thread| {
            let mut worked = Instant::now();
            while Some(thread.index()) != own && !done.load(Ordering::Acquire) && worked.elapsed() < IDLE {
                if rayon::yield_now() == Some(rayon::Yield::Executed) {
                    worked = Instant::now();
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let _done = Done(done); // also when it panics
        work()
    })
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn texts_of_several_threads_share_a_pool() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let sum =
            |of: usize| (0..of).into_par_iter().map(|a| (0..64).into_par_iter().map(|b| a * b).sum::<usize>());
        let step = || awake(|| sum(8).sum::<usize>());
        let text = || (0..100).map(|_| pool.install(step)).sum::<usize>();
        std::thread::scope(|scope| {
            let texts: Vec<_> = (0..4).map(|_| scope.spawn(text)).collect();
            for one in texts {
                assert_eq!(one.join().unwrap(), 100 * (0..8).sum::<usize>() * (0..64).sum::<usize>());
            }
        });
    }
}
