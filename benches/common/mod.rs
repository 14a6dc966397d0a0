//! What all benchmarks need.
#![allow(dead_code)]

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

/// The value of a future that has nothing to wait for: the runtime is not what is measured.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the lock was not free"),
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
