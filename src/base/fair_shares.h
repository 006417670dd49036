// Whose piece of work a shared device runs next, so that nobody's work starves: weighed fair queueing over classes of work and, in a
// class, over API keys. An account is one key's in one class. Its virtual time is the device seconds it was given, over its weight; so
// has a class, over its share. The class with the least goes next, and in it the account with the least. Who comes back from idle is lifted
// to the least of those that have work: what was left is no credit (VTC: Sheng et al., Fairness in Serving Large Language Models, OSDI
// 2024). Two that both have work therefore differ by a piece each, whatever they do.
// While live work is within its share of the last seconds it goes first, also where others had less.
// A piece may be of several accounts, a step of an engine with rows of each: accounts pay by their tokens, and classes by their shares. A
// class whose few rows ride in the steps of another would else seem to have had nothing, and be chosen for ever.
// Knows no device, no lock and no clock: times are told, in seconds from any beginning. One thread at a time; what ShareAccount tells, any.
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

  // Kept while somebody holds it, or it has had more than others.
  std::shared_ptr<ShareAccount> account(WorkClass work, const std::string& key);
  // The keys that are known by name, and their weights; any other has weight 1.
  void set_keys(std::map<std::string, double> weights);

  // It has work from now on; it has none. Again: nothing happens.
  void arrive(ShareAccount& account, double now);
  void leave(ShareAccount& account);
  bool idle() const;
  // Null: nobody has work.
  ShareAccount* next(double now);
  // The live account whose turn comes before more of a running piece of `beside`, whatever others wait for that piece to end; where it is null, of what goes
  // first alone. Null: there is none.
  ShareAccount* next_live(const ShareAccount* beside, double now);
  struct Part {
    ShareAccount* account;
    double tokens;
  };
  // A piece, or a part of one, of `seconds` has ended at `now`; nobody's costs nobody anything.
  void charge(std::span<const Part> parts, double seconds, double now);
  void charge(std::initializer_list<Part> parts, double seconds, double now) { charge(std::span<const Part>(parts.begin(), parts.size()), seconds, now); }

  // For a scrape; keys without a name are told as one, and so is the server's own work ("").
  struct Line {
    WorkClass work;
    std::string key;
    double seconds;
    std::string why = {};  // of who waits: company()
  };
  std::vector<Line> used() const;               // since the beginning, by tokens
  std::vector<Line> waiting(double now) const;  // who has work, and for how long none of its pieces has ended; the longest of those told as one
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
