//! Matrices are multiplied, and an array that is a large object is filled and read: there is nothing to co-allocate.

use super::classes::{Matrix, Numbers, Rows};
use super::{SEED, mix};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Products.
const PRODUCTS: u32 = 2;
/// Numbers of the large array.
const LARGE: u32 = 100_000;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, size: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let factor = matrix(heap, size)?;
    let mut product = matrix(heap, size)?;
    for both in [&factor, &product] {
        for at in 0..size * size {
            heap.set_datum(row(heap, heap.at(both), at / size), at % size, random.f64());
        }
    }
    for _ in 0..PRODUCTS {
        product = multiply(heap, &factor, &product, size)?;
    }
    let mut sum = SEED;
    for at in 0..size {
        sum = mix(sum, heap.datum(row(heap, heap.at(&product), at), at).to_bits());
    }
    for _ in 0..PRODUCTS {
        let large = heap.allocate_data::<Numbers>(LARGE)?;
        let large = heap.at(&large);
        (0..LARGE).for_each(|at| heap.set_datum(large, at, f64::from(at)));
        let total: f64 = (0..LARGE).step_by(3).map(|at| heap.datum(large, at)).sum();
        sum = mix(sum, total.to_bits());
    }
    Ok(sum)
}

/// A square matrix of zeros.
fn matrix<O: Observer>(heap: &mut Heap<O>, size: u32) -> Result<Handle<Matrix>, OutOfMemory> {
    let matrix = heap.allocate::<Matrix>()?;
    let rows = heap.allocate_references::<Rows>(size)?;
    heap.set(heap.at(&matrix), Matrix::rows(), Some(heap.at(&rows)));
    heap.set_word(heap.at(&matrix), Matrix::height(), size);
    heap.set_word(heap.at(&matrix), Matrix::width(), size);
    for at in 0..size {
        let row = heap.allocate_data::<Numbers>(size)?;
        heap.set_element(heap.at(&rows), at, Some(heap.at(&row)));
    }
    Ok(matrix)
}

fn row<'h, O: Observer>(heap: &'h Heap<O>, matrix: Ref<'h, Matrix>, at: u32) -> Ref<'h, Numbers> {
    let rows = heap.get(matrix, Matrix::rows()).expect("a matrix has rows");
    heap.element(rows, at).expect("every row is there")
}

fn multiply<O: Observer>(
    heap: &mut Heap<O>,
    one: &Handle<Matrix>,
    other: &Handle<Matrix>,
    size: u32,
) -> Result<Handle<Matrix>, OutOfMemory> {
    let product = matrix(heap, size)?;
    for i in 0..size {
        let (left, result) = (row(heap, heap.at(one), i), row(heap, heap.at(&product), i));
        for k in 0..size {
            let factor = heap.datum(left, k);
            let right = row(heap, heap.at(other), k);
            for j in 0..size {
                let sum = heap.datum(result, j) + factor * heap.datum(right, j) / f64::from(size);
                heap.set_datum(result, j, sum);
            }
        }
        heap.safe_point();
    }
    Ok(product)
}
