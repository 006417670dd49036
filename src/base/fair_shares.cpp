#include "base/fair_shares.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostIdle = 4096;

// In any window of two seconds live work goes first for at most its share of them: a burst (kAtOnce of the window) at once, the rest as time goes on.
// It gives back later what it had first, so the burst is small: it is the most that live work may lack of its share in a window. Once the burst is
// used up, live work waits until half of it has accumulated again: with a live step whenever time allowed one, live work and the other would
// alternate every millisecond, each evicting the other's data from the processor caches.
constexpr double kWindow = 2, kAtOnce = 1.0 / 32;
double live_burst(double share) { return kAtOnce * share * kWindow; }
double live_rate(double share) { return (1 - kAtOnce) * share; }

void raise(std::atomic<double>& value, double least) { value.store(std::max(value.load(std::memory_order_relaxed), least), std::memory_order_relaxed); }
}  // namespace

std::string_view work_class_name(WorkClass work) {
  constexpr std::string_view kNames[] = {"live", "rollouts", "training"};
  return kNames[static_cast<std::size_t>(work)];
}

ClassShares parse_class_shares(std::string_view text) {
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument, "shares is '{}', allowed is live=A,rollouts=B,training=C with whole percents of at least 1 that add up to 100", text);
  };
  ClassShares shares{{0, 0, 0}};
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::size_t equals = std::min(one.find('='), one.size());
    std::size_t which = 0;
    while (which < kWorkClasses && work_class_name(static_cast<WorkClass>(which)) != one.substr(0, equals)) ++which;
    if (which == kWorkClasses || equals == one.size() || shares.percent[which] != 0) refuse();
    const char* const end = one.data() + one.size();
    const auto [stop, error] = std::from_chars(one.data() + equals + 1, end, shares.percent[which]);
    if (error != std::errc() || stop != end || shares.percent[which] < 1 || shares.percent[which] > 100) refuse();
  }
  int sum = 0;
  for (const int percent : shares.percent) {
    if (percent == 0) refuse();
    sum += percent;
  }
  if (sum != 100) refuse();
  return shares;
}

FairShares::FairShares(const ClassShares& shares) : sweep_at_(kMostIdle) {
  for (std::size_t i = 0; i < kWorkClasses; ++i) classes_[i].share = shares.of(static_cast<WorkClass>(i));
}

std::shared_ptr<ShareAccount> FairShares::account(WorkClass work, const std::string& key) {
  if (const auto found = accounts_.find({work, key}); found != accounts_.end()) return found->second;
  if (accounts_.size() >= sweep_at_) forget_idle();
  const auto weight = weights_.find(key);
  const Class& its = classes_[static_cast<std::size_t>(work)];
  return accounts_[{work, key}] = std::make_shared<ShareAccount>(work, key, its.share, weight != weights_.end() ? weight->second : 1, its.token_time);
}

// An idle account that is not above what a newcomer gets is a newcomer when it comes back. Where clients make up a key for each request,
// those that are above go too.
void FairShares::forget_idle() {
  std::array<double, kWorkClasses> lifts{};
  for (std::size_t i = 0; i < kWorkClasses; ++i) lifts[i] = lift_of(classes_[i]);
  for (const bool all : {false, true}) {
    if (all && accounts_.size() < kMostIdle) break;
    std::erase_if(accounts_, [&](const auto& entry) {
      const ShareAccount& a = *entry.second;
      return !a.active_ && entry.second.use_count() == 1 && (all || a.virtual_time() <= lifts[static_cast<std::size_t>(a.work)]);
    });
  }
  sweep_at_ = std::max(kMostIdle, 2 * accounts_.size());
}

void FairShares::set_keys(std::map<std::string, double> weights) {
  weights_ = std::move(weights);
  for (auto& [name, account] : accounts_) {
    const auto weight = weights_.find(account->key);
    account->weight_ = weight != weights_.end() ? weight->second : 1;
  }
}

// Raises the virtual time of a class that had no work until now to the least of those with work.
void FairShares::lift_class(Class& its) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double least = kNone, least_tokens = kNone;
  for (const Class& other : classes_) {
    if (other.active.empty()) continue;
    least = std::min(least, other.virtual_time);
    least_tokens = std::min(least_tokens, other.token_time->load(std::memory_order_relaxed));
  }
  lifted_ = std::max(lifted_, least == kNone ? highest_ : least);
  its.virtual_time = std::max(its.virtual_time, lifted_);
  if (least_tokens != kNone) raise(*its.token_time, least_tokens);
}

double FairShares::lift_of(Class& its) {
  double least = std::numeric_limits<double>::infinity();
  for (const ShareAccount* a : its.active) least = std::min(least, a->virtual_time());
  return its.lifted = std::max(its.lifted, its.active.empty() ? its.highest : least);
}

void FairShares::arrive(ShareAccount& account, double now) {
  if (account.active_) return;
  Class& its = of(account);
  if (its.active.empty()) lift_class(its);
  raise(account.virtual_time_, lift_of(its));
  account.active_ = true;
  account.order_ = ++order_;
  account.waits_since_ = now;
  its.active.push_back(&account);
}

void FairShares::leave(ShareAccount& account) {
  if (!account.active_) return;
  account.active_ = false;
  std::vector<ShareAccount*>& active = of(account).active;
  *std::find(active.begin(), active.end(), &account) = active.back();
  active.pop_back();
}

bool FairShares::idle() const {
  return std::all_of(classes_.begin(), classes_.end(), [](const Class& its) { return its.active.empty(); });
}

void FairShares::drain(double now) {
  live_use_ = std::max(0.0, live_use_ - live_rate(classes_[0].share) * (now - drained_at_));
  drained_at_ = now;
  if (live_use_ <= live_burst(classes_[0].share) / 2) live_waits_ = false;
}

ShareAccount* FairShares::next(double now) {
  drain(now);
  Class* chosen = nullptr;
  for (Class& its : classes_)
    if (!its.active.empty() && (!chosen || its.virtual_time < chosen->virtual_time)) chosen = &its;
  if (!chosen) return nullptr;
  return first_of(live_goes_first() ? classes_[static_cast<std::size_t>(WorkClass::live)] : *chosen);
}

ShareAccount* FairShares::next_live(const ShareAccount* beside, double now) {
  drain(now);
  const Class& live = classes_[static_cast<std::size_t>(WorkClass::live)];
  const bool by_share = beside && !live.active.empty() && live.virtual_time < of(*beside).virtual_time;
  return by_share || live_goes_first() ? first_of(live) : nullptr;
}

bool FairShares::live_goes_first() const {
  const Class& live = classes_[static_cast<std::size_t>(WorkClass::live)];
  return !live.active.empty() && !live_waits_;
}

ShareAccount* FairShares::first_of(const Class& its) {
  return *std::min_element(its.active.begin(), its.active.end(), [](const ShareAccount* a, const ShareAccount* b) {
    return std::pair(a->virtual_time(), a->order_) < std::pair(b->virtual_time(), b->order_);
  });
}

void FairShares::charge(std::span<const Part> parts, double seconds, double now) {
  drain(now);
  double tokens = 0, shares = 0;
  std::array<bool, kWorkClasses> part{};
  for (const Part& p : parts) {
    tokens += p.tokens;
    part[static_cast<std::size_t>(p.account->work)] = true;
  }
  for (std::size_t i = 0; i < kWorkClasses; ++i)
    if (part[i]) shares += classes_[i].share;
  for (const Part& p : parts) {
    ShareAccount& a = *p.account;
    const double its_seconds = seconds * (tokens > 0 ? p.tokens / tokens : 1.0 / static_cast<double>(parts.size()));
    a.virtual_time_.store(a.virtual_time() + its_seconds / a.weight(), std::memory_order_relaxed);
    a.seconds_.store(a.seconds() + its_seconds, std::memory_order_relaxed);
    a.order_ = ++order_;
    a.waits_since_ = now;
    Class& its = of(a);
    its.highest = std::max(its.highest, a.virtual_time());
    its.token_time->store(its.token_time->load(std::memory_order_relaxed) + its_seconds / its.share, std::memory_order_relaxed);
    used_[{a.work, told(a)}] += its_seconds;
  }
  for (std::size_t i = 0; i < kWorkClasses; ++i) {
    if (!part[i]) continue;
    classes_[i].virtual_time += seconds / shares;
    highest_ = std::max(highest_, classes_[i].virtual_time);
  }
  const double live = classes_[static_cast<std::size_t>(WorkClass::live)].share;
  // Use beyond what goes first is forgotten but for another such amount: work that was alone for long is soon within its share again.
  if (part[static_cast<std::size_t>(WorkClass::live)]) live_use_ = std::min(live_use_ + seconds * live / shares, 2 * live_burst(live) + seconds);
  if (live_use_ >= live_burst(live)) live_waits_ = true;
}

// The key as a metric's label, of which there is a bounded number.
std::string FairShares::told(const ShareAccount& account) const {
  if (account.key.empty()) return "(server)";
  return weights_.contains(account.key) ? account.key : "(no name)";
}

std::vector<FairShares::Line> FairShares::used() const {
  std::vector<Line> lines;
  for (const auto& [whose, seconds] : used_) lines.push_back({whose.first, whose.second, seconds});
  return lines;
}

std::vector<FairShares::Line> FairShares::waiting(double now) const {
  std::map<std::pair<WorkClass, std::string>, Line> longest;
  for (const Class& its : classes_)
    for (const ShareAccount* a : its.active) {
      const auto [line, is_first] = longest.try_emplace({a->work, told(*a)}, Line{a->work, told(*a), 0, company(*a)});
      line->second.seconds = std::max(line->second.seconds, now - a->waits_since_);
    }
  std::vector<Line> lines;
  for (auto& [whose, line] : longest) lines.push_back(std::move(line));
  return lines;
}

std::string FairShares::company(const ShareAccount& account) const {
  if (!account.active_) return {};
  const std::string_view own = work_class_name(account.work);
  const Class& its = classes_[static_cast<std::size_t>(account.work)];
  std::vector<std::string_view> beside;
  double shares = its.share;
  for (std::size_t i = 0; i < kWorkClasses; ++i) {
    if (&classes_[i] == &its || classes_[i].active.empty()) continue;
    beside.push_back(work_class_name(static_cast<WorkClass>(i)));
    shares += classes_[i].share;
  }
  const std::size_t others = its.active.size() - 1;
  std::string words;
  if (!beside.empty()) words = fmt::format("{} has {:.0f} of {:.0f} shares beside {}", own, 100 * its.share, 100 * shares, fmt::join(beside, " and "));
  if (others > 0)
    words += fmt::format("{}{} other key{} in {} ha{} work", words.empty() ? "" : ", and ", others, others == 1 ? "" : "s", own, others == 1 ? "s" : "ve");
  return words;
}

}  // namespace lockstep
