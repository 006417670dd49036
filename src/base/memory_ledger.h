// A memory budget in bytes and the claims on it, each with a category ("models") and a key (its owner).
//   MemoryLedger ledger(bytes); ledger.describe("models", "unload some");
//   MemoryLedger::Claim room = ledger.claim("models", owner, plan.bytes, "model 'a'"); ... room.release();
// Claim before allocating, release after freeing; nothing is allocated here. A claim that does not fit is refused with one error, which tells what
// was wanted, what is free, who holds the rest and how to free some. Any thread.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class MemoryLedger {
  struct Books;

 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

  explicit MemoryLedger(std::int64_t total = kUnlimited);

  // Bytes that are held until released or destroyed. Movable; keeps the ledger's state alive. One thread at a time.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { *this = std::move(other); }
    Claim& operator=(Claim&& other) noexcept;
    ~Claim() { release(); }
    std::int64_t bytes() const { return bytes_; }
    // Grows where there is room, shrinks always; false: it stays as it was.
    bool try_resize(std::int64_t bytes);
    void release() noexcept;

   private:
    friend class MemoryLedger;
    std::shared_ptr<Books> books_;
    std::string category_, key_;
    std::int64_t bytes_ = 0;
  };

  // `what` is the subject of the error resource_exhausted: "model 'a'".
  Claim claim(const std::string& category, const std::string& key, std::int64_t bytes, const std::string& what);
  // Empty when it does not fit.
  std::optional<Claim> try_claim(const std::string& category, const std::string& key, std::int64_t bytes);
  // How to free memory of a category, for errors; categories without a description are not suggested.
  void describe(const std::string& category, const std::string& remedy);

  std::int64_t total() const;
  std::int64_t held() const;
  std::int64_t free() const { return total() - held(); }
  std::int64_t held(const std::string& category) const;
  std::int64_t held(const std::string& category, const std::string& key) const;
  struct Holding {
    std::string category;
    std::int64_t bytes = 0, claims = 0;
  };
  std::vector<Holding> holdings() const;  // by category; includes those that hold nothing any more
  [[noreturn]] void refuse(std::int64_t bytes, const std::string& what) const;

 private:
  std::shared_ptr<Books> books_;
};

// A shared pointer to an object and its claim: the claim is released with the last reference.
template <class T>
std::shared_ptr<const T> with_claim(std::shared_ptr<const T> thing, MemoryLedger::Claim&& room) {
  struct Both {
    MemoryLedger::Claim room;  // destroyed after the object
    std::shared_ptr<const T> thing;
  };
  const auto both = std::make_shared<Both>(Both{std::move(room), std::move(thing)});
  return std::shared_ptr<const T>(both, both->thing.get());
}

// "1234.5 MB", of 2^20 bytes: the unit of the options that limit memory.
std::string megabytes_text(std::int64_t bytes);

}  // namespace lockstep
