// Memory accounts by category: what is allocated now, and the peak. Plans (planning/memory_plan.h) are measured by the same accounts.
// Thread-safe.
//   MemoryAccounts accounts; accounts.add(MemoryCategory::weights, 1 << 20); accounts.remove(MemoryCategory::weights, 1 << 20);
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace lockstep {

// optimizer_file: bytes in a file (file_memory.h), not in memory; they are not part of peak_of_all().
enum class MemoryCategory : std::uint8_t { weights, gradients, optimizer, activations, cache, workspace, optimizer_file };
inline constexpr int kMemoryCategories = 7;
inline constexpr std::array<std::string_view, kMemoryCategories> kMemoryCategoryNames = {"weights", "gradients", "optimizer",     "activations",
                                                                                         "cache",   "workspace", "optimizer_file"};

class MemoryAccounts {
 public:
  void add(MemoryCategory category, std::int64_t bytes) {
    accounts_[static_cast<int>(category)].add(bytes);
    if (category != MemoryCategory::optimizer_file) all_.add(bytes);
  }
  void remove(MemoryCategory category, std::int64_t bytes) {
    accounts_[static_cast<int>(category)].current.fetch_sub(bytes);
    if (category != MemoryCategory::optimizer_file) all_.current.fetch_sub(bytes);
  }
  std::int64_t current(MemoryCategory category) const { return accounts_[static_cast<int>(category)].current; }
  std::int64_t peak(MemoryCategory category) const { return accounts_[static_cast<int>(category)].peak; }
  std::int64_t peak_of_all() const { return all_.peak; }  // at one time: not the sum of the categories' peaks
  void reset_peaks() {
    for (Account& a : accounts_) a.peak = a.current.load();
    all_.peak = all_.current.load();
  }

 private:
  struct Account {
    std::atomic<std::int64_t> current{0}, peak{0};
    void add(std::int64_t bytes) {
      const std::int64_t now = current.fetch_add(bytes) + bytes;
      for (std::int64_t before = peak.load(); now > before && !peak.compare_exchange_weak(before, now);) {
      }
    }
  };
  std::array<Account, kMemoryCategories> accounts_;
  Account all_;
};

}  // namespace lockstep
