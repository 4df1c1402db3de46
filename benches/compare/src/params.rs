//! What a child is told: `key=value` words, all of them whole numbers.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Params(BTreeMap<String, u64>);

impl Params {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Params, String> {
        words
            .map(|word| {
                let (key, value) = word.split_once('=').ok_or(format!("{word}: no value"))?;
                let value = value.parse().map_err(|_| format!("{word}: no number"))?;
                Ok((key.to_owned(), value))
            })
            .collect::<Result<_, _>>()
            .map(Params)
    }

    /// The number of that name, if the parent said it.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        self.0.get(key).map(|&value| value as usize)
    }

    /// The number of that name.
    ///
    /// # Panics
    ///
    /// If the parent did not say it.
    pub(crate) fn get(&self, key: &str) -> usize {
        match self.find(key) {
            Some(value) => value,
            None => panic!("this workload needs {key}=<number>"),
        }
    }
}
