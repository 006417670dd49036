// An API key's account on a shared device, in one class of work: how many device seconds it was given, and its virtual time, by which FairShares
// (base/fair_shares.h) chooses whose piece runs next. Its figures may be read on any thread.
//   const ClassShares shares = parse_class_shares("live=60,rollouts=20,training=20"); shares.of(WorkClass::live) == 0.6;
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

enum class WorkClass { live, rollouts, training };
inline constexpr std::size_t kWorkClasses = 3;
std::string_view work_class_name(WorkClass work);

// Percent of the device's seconds, by class; 100 in all.
struct ClassShares {
  std::array<int, kWorkClasses> percent{60, 20, 20};
  double of(WorkClass work) const { return percent[static_cast<std::size_t>(work)] / 100.0; }
};
// "live=60,rollouts=20,training=20". Error invalid_argument.
ClassShares parse_class_shares(std::string_view text);

// Virtual times change when a piece, or a part of one that gives way, ends, and when work arrives.
class ShareAccount {
 public:
  ShareAccount(WorkClass its_class, std::string its_key, double its_class_share, double weight, std::shared_ptr<const std::atomic<double>> class_time)
      : work(its_class), key(std::move(its_key)), class_share(its_class_share), weight_(weight), class_time_(std::move(class_time)) {}
  const WorkClass work;
  const std::string key;
  const double class_share;
  double weight() const { return weight_.load(std::memory_order_relaxed); }
  double virtual_time() const { return virtual_time_.load(std::memory_order_relaxed); }
  double class_time() const { return class_time_->load(std::memory_order_relaxed); }  // of its class, by tokens
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }         // of the device, since the beginning

 private:
  friend class FairShares;
  std::atomic<double> weight_, virtual_time_{0}, seconds_{0};
  std::shared_ptr<const std::atomic<double>> class_time_;
  bool active_ = false;
  std::uint64_t order_ = 0;  // among equals: who came first, or had its last piece longest ago
  double waits_since_ = 0;
};

}  // namespace lockstep
