// Decides whose work a shared device runs next, by weighted fair queueing over classes of work and, within a class, over API keys. Example: shares
// live=60,rollouts=20,training=20; while all three have work, live work gets 60 % of the device's seconds; when only rollouts and training have work,
// each gets half. Each account (a key in a class) has a virtual time, the device seconds it was given divided by its weight; each class too, by its
// share. The class with the least virtual time is next, and in it the account with the least. An account that was idle starts at the least virtual
// time of those with work, so idle time is no credit (VTC: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024). So two accounts that
// both have work differ by one piece at most. Live work goes first while it is within its share of the last seconds, even where others had less.
// A piece may belong to several accounts, as an engine step with rows of each: accounts pay by their tokens, classes by their shares. (Otherwise a
// class with few rows in the steps of another would seem to have had nothing, and always be next.)
// Knows no device, lock or clock: callers pass times in seconds. One thread at a time; the figures of ShareAccount on any.
//   FairShares shares; const auto ann = shares.account(WorkClass::live, "ann"); shares.arrive(*ann, now);
//   ShareAccount* next = shares.next(now); ... shares.charge({{next, 1}}, seconds, now); shares.leave(*ann);
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/share_account.h"

namespace lockstep {

class FairShares {
 public:
  explicit FairShares(const ClassShares& shares = {});

  // The account of a key in a class; made if there is none. It is kept while somebody holds the pointer, or while it has used more than others.
  std::shared_ptr<ShareAccount> account(WorkClass work, const std::string& key);
  // The keys that are known by name, and their weights; any other has weight 1.
  void set_keys(std::map<std::string, double> weights);

  // The account has work from now on; it has none any more. Repeating a call does nothing.
  void arrive(ShareAccount& account, double now);
  void leave(ShareAccount& account);
  bool idle() const;
  // The account whose piece should run next; null: nobody has work.
  ShareAccount* next(double now);
  // The live account that should run before a running piece of `beside` continues, no matter who waits for that piece to end: if the live class has
  // had less than that of `beside`, or is within what goes first. `beside` null: only the latter. Null: there is none.
  ShareAccount* next_live(const ShareAccount* beside, double now);
  struct Part {
    ShareAccount* account;
    double tokens;
  };
  // A piece, or a part of one, of `seconds` has ended at `now`: charges the accounts it belonged to. Without parts it is charged to nobody.
  void charge(std::span<const Part> parts, double seconds, double now);
  void charge(std::initializer_list<Part> parts, double seconds, double now) { charge(std::span<const Part>(parts.begin(), parts.size()), seconds, now); }

  // A line of the metrics; keys without a name are reported as one, and so is the server's own work ("").
  struct Line {
    WorkClass work;
    std::string key;
    double seconds;
    std::string why = {};  // of waiting(): company()
  };
  std::vector<Line> used() const;               // since the beginning, by tokens
  std::vector<Line> waiting(double now) const;  // those with work, and seconds since a piece of it last ended; the longest of keys that share a line
  std::string told(const ShareAccount& account) const;
  // With whom an account shares the device at the moment, in words: "training has 20 of 80 shares beside live, and 2 other keys in training have
  // work". Empty: nobody else has work, or it has none itself.
  std::string company(const ShareAccount& account) const;

 private:
  struct Class {
    double share = 0;
    double virtual_time = 0;
    std::shared_ptr<std::atomic<double>> token_time = std::make_shared<std::atomic<double>>(0);
    std::vector<ShareAccount*> active;
    double lifted = 0, highest = 0;  // of its accounts' virtual times: what a newcomer has at least; the most that any has had
  };
  const Class& of(const ShareAccount& account) const { return classes_[static_cast<std::size_t>(account.work)]; }
  Class& of(const ShareAccount& account) { return classes_[static_cast<std::size_t>(account.work)]; }
  void lift_class(Class& its);
  static double lift_of(Class& its);
  void drain(double now);
  bool live_goes_first() const;
  static ShareAccount* first_of(const Class& its);
  void forget_idle();

  std::array<Class, kWorkClasses> classes_;
  double lifted_ = 0, highest_ = 0;  // of classes, as of a class's accounts
  double live_use_ = 0, drained_at_ = 0;
  bool live_waits_ = false;  // it has had all that goes first, and half of that is not there again
  std::uint64_t order_ = 0;
  std::map<std::pair<WorkClass, std::string>, std::shared_ptr<ShareAccount>> accounts_;
  std::size_t sweep_at_;
  std::map<std::string, double> weights_;
  std::map<std::pair<WorkClass, std::string>, double> used_;
};

}  // namespace lockstep
