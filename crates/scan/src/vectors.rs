//! Loops in the widest vectors that the processor has.
//!
//! A function that [`vectorized!`] defines is compiled for several sets of the processor's features, from one text, and
//! the best one is chosen when it is called. The portable one is the reference: whatever is chosen, results are the same.

/// What the processor has, poorest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vectors {
    Portable,
    Bits256,
    Bits512,
}

impl Vectors {
    #[inline(always)]
    pub fn best() -> Self {
        #[cfg(test)]
        if let Some(forced) = tests::FORCED.get() {
            return forced;
        }
        Self::found()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn found() -> Self {
        use std::arch::is_x86_feature_detected as has;
        static FOUND: std::sync::OnceLock<Vectors> = std::sync::OnceLock::new();
        *FOUND.get_or_init(|| {
            let narrow = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt");
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match (narrow, wide) {
                (true, true) => Self::Bits512,
                (true, false) => Self::Bits256,
                _ => Self::Portable,
            }
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn found() -> Self {
        Self::Portable
    }
}

/// Defines functions whose bodies are compiled for every kind of [`Vectors`].
macro_rules! vectorized {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        $vis fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
            fn bits256($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            fn bits512($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            match $crate::vectors::Vectors::best() {
                // SAFETY: the processor has what this was compiled for.
                #[cfg(target_arch = "x86_64")]
                $crate::vectors::Vectors::Bits512 => unsafe { bits512($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::vectors::Vectors::Bits256 => unsafe { bits256($($argument),*) },
                _ => portable($($argument),*),
            }
        }
    )*};
}

pub(crate) use vectorized;

vectorized! {
    /// How many of the rows are marked; a mark is 1, and 0 is none.
    pub(crate) fn marked(marks: &[u8]) -> usize {
        // Sums of bytes as bytes, of few enough that they cannot overflow.
        let of_some = |some: &[u8]| some.iter().sum::<u8>();
        let (whole, rest) = marks.as_chunks::<128>();
        whole.iter().map(|some| usize::from(of_some(some))).sum::<usize>() + usize::from(of_some(rest))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Vectors, marked};
    use std::cell::Cell;

    #[test]
    fn marks_are_counted_in_any_vectors() {
        with_each(|_| {
            for length in [0usize, 1, 127, 128, 129, 1024, 1500] {
                let marks: Vec<u8> = (0..length).map(|at| u8::from(at % 3 == 0)).collect();
                assert_eq!(marked(&marks), length.div_ceil(3));
                assert_eq!(marked(&vec![1; length]), length);
            }
        });
    }

    thread_local! {
        pub static FORCED: Cell<Option<Vectors>> = const { Cell::new(None) };
    }

    /// Runs a test with each kind of vectors that the processor has.
    pub fn with_each(mut test: impl FnMut(Vectors)) {
        for vectors in [Vectors::Portable, Vectors::Bits256, Vectors::Bits512] {
            if vectors <= Vectors::found() {
                FORCED.set(Some(vectors));
                test(vectors);
            }
        }
        FORCED.set(None);
    }
}
