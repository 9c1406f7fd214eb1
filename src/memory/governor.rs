//! How many bytes may be committed, in all and by one user. Never a silent overcommit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Where memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// The machine's.
    Host,
    /// A GPU's.
    Device,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Device => "device",
        })
    }
}

/// A refusal: which budget, how much of it is used and by whom, and what was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct BudgetError {
    tier: Tier,
    holder: String,
    asked: u64,
    budget_name: String,
    budget: u64,
    why: Why,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Why {
    /// So much is used, by these.
    Used { used: u64, holders: String },
    /// There may never be so much.
    Never,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, holder, asked, budget_name, budget, why } = self;
        write!(
            f,
            "{asked} bytes of {tier} memory for {holder} do not fit into {budget_name} of {budget} bytes: "
        )?;
        match why {
            Why::Used { used, holders } => {
                let advice = match tier {
                    Tier::Host => "drop a table or raise the budget",
                    // Idle blocks are used in the governor's eyes, and other pools do not give theirs away.
                    Tier::Device => "drop a table, trim pools that keep idle blocks, or raise the budget",
                };
                let left = budget.saturating_sub(*used);
                write!(f, "{used} are used ({holders}), {left} are left; {advice}")
            }
            Why::Never => f.write_str("not even if nothing else is used; ask for less or raise the budget"),
        }
    }
}

/// What is used of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Bytes that may be committed.
    pub budget: u64,
    /// Bytes that are.
    pub used: u64,
}

/// The budgets.
#[derive(Debug)]
pub struct MemoryGovernor {
    tiers: [u64; 2],
    per_uid: u64,
    used: Mutex<BTreeMap<(Tier, u32, String), u64>>,
}

impl MemoryGovernor {
    /// Budgets in bytes: of host memory in all, and of either tier for one user. There is no device memory.
    pub fn new(host: u64, per_uid: u64) -> Self {
        Self { tiers: [host, 0], per_uid, used: Mutex::default() }
    }

    /// With a budget in bytes of device memory, of all devices together.
    #[must_use]
    pub const fn with_device(mut self, bytes: u64) -> Self {
        self.tiers[Tier::Device as usize] = bytes;
        self
    }

    /// What is used of host memory.
    pub fn host_usage(&self) -> Usage {
        self.usage(Tier::Host)
    }

    /// What is used of device memory.
    pub fn device_usage(&self) -> Usage {
        self.usage(Tier::Device)
    }

    fn usage(&self, of: Tier) -> Usage {
        let used = self.used();
        Usage { budget: self.tiers[of as usize], used: sum(&used, |&(tier, ..)| tier == of) }
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<(Tier, u32, String), u64>> {
        // Every change is one insertion, so what a panicking thread leaves is whole.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, as a thread does that is at work on it.
    #[cfg(test)]
    pub(in crate::memory) fn locked(&self) -> impl Sized {
        self.used()
    }

    fn take(&self, account: &Account, asked: u64) -> Result<(), BudgetError> {
        let mut used = self.used();
        self.check(account, asked, Some(&used))?;
        *used.entry(account.key()).or_default() += asked;
        Ok(())
    }

    /// Whether it fits into each budget, beside what is used; None: if nothing were.
    fn check(
        &self,
        account: &Account,
        asked: u64,
        used: Option<&BTreeMap<(Tier, u32, String), u64>>,
    ) -> Result<(), BudgetError> {
        let (tier, uid) = (account.tier, account.uid);
        let budgets = [
            (format!("the {tier} budget"), self.tiers[tier as usize], None),
            (format!("the budget of uid {uid}"), self.per_uid, Some(uid)),
        ];
        for (name, budget, only) in budgets {
            let counted = |key: &(Tier, u32, String)| key.0 == tier && only.is_none_or(|only| key.1 == only);
            let total = used.map_or(0, |used| sum(used, counted));
            if total.checked_add(asked).is_some_and(|total| total <= budget) {
                continue;
            }
            let why = match used {
                Some(used) if asked <= budget => Why::Used { used: total, holders: largest(used, counted) },
                _ => Why::Never,
            };
            let holder = account.holder.clone();
            return Err(BudgetError { tier, holder, asked, budget_name: name, budget, why });
        }
        Ok(())
    }

    fn give_back(&self, account: &Account, bytes: u64) {
        let mut used = self.used();
        if let Some(held) = used.get_mut(&account.key()) {
            *held -= bytes;
            if *held == 0 {
                used.remove(&account.key());
            }
        }
    }
}

fn sum(used: &BTreeMap<(Tier, u32, String), u64>, counted: impl Fn(&(Tier, u32, String)) -> bool) -> u64 {
    used.iter().filter(|(key, _)| counted(key)).map(|(_, bytes)| bytes).sum()
}

/// The largest holders, for people.
fn largest(
    used: &BTreeMap<(Tier, u32, String), u64>,
    counted: impl Fn(&(Tier, u32, String)) -> bool,
) -> String {
    let mut holders: Vec<_> = used.iter().filter(|(key, _)| counted(key)).collect();
    holders.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let named =
        holders.iter().take(3).map(|((_, uid, holder), bytes)| format!("{holder} of uid {uid}: {bytes}"));
    let named: Vec<String> = named.collect();
    match (named.is_empty(), holders.len().saturating_sub(3)) {
        (true, _) => "by nobody".into(),
        (false, 0) => named.join(", "),
        (false, more) => format!("{}, and {more} more", named.join(", ")),
    }
}

/// Who takes memory.
#[derive(Clone, Debug)]
pub struct Account {
    governor: Arc<MemoryGovernor>,
    tier: Tier,
    uid: u32,
    holder: String,
}

impl Account {
    /// Host memory for that user, held by what is named.
    pub fn host(governor: Arc<MemoryGovernor>, uid: u32, holder: impl Into<String>) -> Self {
        Self { governor, tier: Tier::Host, uid, holder: holder.into() }
    }

    /// Device memory for that user, held by what is named.
    pub fn device(governor: Arc<MemoryGovernor>, uid: u32, holder: impl Into<String>) -> Self {
        Self { governor, tier: Tier::Device, uid, holder: holder.into() }
    }

    /// For memory that somebody else answers for: nothing is leased.
    pub fn nobody() -> Self {
        Self::host(Arc::new(MemoryGovernor::new(0, 0)), 0, "nobody")
    }

    /// Where its memory is.
    pub const fn tier(&self) -> Tier {
        self.tier
    }

    /// Whether so many bytes would fit into the budgets if nothing were used of them.
    ///
    /// # Errors
    /// If they never fit, whoever gives something back.
    pub fn could_hold(&self, bytes: u64) -> Result<(), BudgetError> {
        self.governor.check(self, bytes, None)
    }

    /// A lease of nothing yet.
    pub const fn lease(self) -> MemoryLease {
        MemoryLease { account: self, bytes: 0 }
    }

    fn key(&self) -> (Tier, u32, String) {
        (self.tier, self.uid, self.holder.clone())
    }
}

/// Bytes that may be committed, for as long as it lives.
#[derive(Debug)]
pub struct MemoryLease {
    account: Account,
    bytes: u64,
}

impl MemoryLease {
    /// Takes more.
    ///
    /// # Errors
    /// If a budget does not allow it; the lease is then as before.
    pub fn grow(&mut self, bytes: u64) -> Result<(), BudgetError> {
        if bytes == 0 {
            return Ok(());
        }
        self.account.governor.take(&self.account, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives some back.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        // An empty lease takes no lock: in a forked child that may never be free.
        if bytes > 0 {
            self.account.governor.give_back(&self.account, bytes);
            self.bytes -= bytes;
        }
    }

    /// Some of it as a lease of its own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { account: self.account.clone(), bytes }
    }

    /// How many it is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_budget_its_holders_and_the_numbers() {
        let governor = Arc::new(MemoryGovernor::new(100, 80));
        let account = |uid, name: &str| Account::host(governor.clone(), uid, name);
        let mut first = account(7, "table a").lease();
        first.grow(70).unwrap();
        let error = account(7, "table b").lease().grow(11).unwrap_err().to_string();
        let expected = "11 bytes of host memory for table b do not fit into the budget of uid 7 of 80 bytes: 70 are \
                        used (table a of uid 7: 70), 10 are left; drop a table or raise the budget";
        assert_eq!(error, expected);
        let error = account(8, "table b").lease().grow(31).unwrap_err().to_string();
        assert!(error.contains("the host budget of 100 bytes: 70 are used"), "{error}");
        let error = account(8, "table b").lease().grow(u64::MAX).unwrap_err().to_string();
        let expected = "the host budget of 100 bytes: not even if nothing else is used; ask for less or raise the budget";
        assert!(error.ends_with(expected), "{error}");
        first.shrink(20);
        assert_eq!(governor.host_usage(), Usage { budget: 100, used: 50 });
        drop(first);
        assert_eq!(governor.host_usage().used, 0);
        assert!(governor.used().is_empty());
    }

    #[test]
    fn a_lease_of_nothing_leaves_the_governor_alone() {
        let governor = Arc::new(MemoryGovernor::new(100, 80));
        let locked = governor.used();
        let mut lease = Account::host(governor.clone(), 7, "table").lease();
        lease.grow(0).unwrap();
        lease.shrink(1);
        drop(lease);
        assert!(locked.is_empty(), "no entries without bytes");
    }

    #[test]
    fn tiers_are_counted_apart_and_a_lease_can_be_split() {
        let governor = Arc::new(MemoryGovernor::new(100, 80).with_device(60));
        let account = Account::device(governor.clone(), 7, "pool");
        let mut all = account.clone().lease();
        all.grow(50).unwrap();
        let part = all.split(20);
        assert_eq!((all.bytes(), part.bytes()), (30, 20));
        let error = account.clone().lease().grow(11).unwrap_err().to_string();
        assert!(error.contains("10 are left; drop a table, trim pools that keep idle blocks"), "{error}");
        drop(all);
        assert_eq!(governor.device_usage(), Usage { budget: 60, used: 20 });
        assert_eq!(governor.host_usage().used, 0);
        account.could_hold(60).expect("it fits once the others are gone");
        let error = account.could_hold(61).unwrap_err().to_string();
        assert!(
            error.contains(
                "61 bytes of device memory for pool do not fit into the device budget of 60 bytes: not even"
            ),
            "{error}"
        );
        assert!(account.could_hold(81).unwrap_err().to_string().contains("budget"));
        drop(part);
        assert!(governor.used().is_empty());
    }
}
