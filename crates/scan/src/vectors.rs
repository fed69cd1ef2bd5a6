//! Loops compiled for several instruction sets.
//!
//! [`vectorized!`] compiles the body of a function once per instruction set, and each call runs the widest version that
//! the processor supports. All versions have the same source, so their results are equal.

/// An instruction set, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstructionSet {
    Portable,
    Avx2,
    Avx512,
}

impl InstructionSet {
    /// The widest instruction set of this processor.
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
        static FOUND: std::sync::OnceLock<InstructionSet> = std::sync::OnceLock::new();
        *FOUND.get_or_init(|| {
            let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt");
            let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match (avx2, avx512) {
                (true, true) => Self::Avx512,
                (true, false) => Self::Avx2,
                _ => Self::Portable,
            }
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn found() -> Self {
        Self::Portable
    }
}

/// Defines functions whose bodies are compiled for every [`InstructionSet`].
macro_rules! vectorized {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        $vis fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            match $crate::vectors::InstructionSet::best() {
                // SAFETY: the processor supports the features that this version is compiled for.
                #[cfg(target_arch = "x86_64")]
                $crate::vectors::InstructionSet::Avx512 => unsafe { avx512($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::vectors::InstructionSet::Avx2 => unsafe { avx2($($argument),*) },
                _ => portable($($argument),*),
            }
        }
    )*};
}

pub(crate) use vectorized;

vectorized! {
    /// The number of marks that are 1; the others are 0.
    pub(crate) fn marked(marks: &[u8]) -> usize {
        // Sums 128 bytes at a time in a u8, which cannot overflow.
        let sum = |marks: &[u8]| marks.iter().sum::<u8>();
        let (whole, rest) = marks.as_chunks::<128>();
        whole.iter().map(|marks| usize::from(sum(marks))).sum::<usize>() + usize::from(sum(rest))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{InstructionSet, marked};
    use std::cell::Cell;

    #[test]
    fn marks_are_counted_the_same_with_all_instruction_sets() {
        with_each(|_| {
            for length in [0usize, 1, 127, 128, 129, 1024, 1500] {
                let marks: Vec<u8> = (0..length).map(|at| u8::from(at % 3 == 0)).collect();
                assert_eq!(marked(&marks), length.div_ceil(3));
                assert_eq!(marked(&vec![1; length]), length);
            }
        });
    }

    thread_local! {
        pub static FORCED: Cell<Option<InstructionSet>> = const { Cell::new(None) };
    }

    /// Runs a test with each instruction set that the processor supports.
    pub fn with_each(mut test: impl FnMut(InstructionSet)) {
        for set in [InstructionSet::Portable, InstructionSet::Avx2, InstructionSet::Avx512] {
            if set <= InstructionSet::found() {
                FORCED.set(Some(set));
                test(set);
            }
        }
        FORCED.set(None);
    }
}
