// Memory that is promised before it is taken: a budget in bytes and claims on it, each of a category ("models") and a key (whose it is).
// A claim that does not fit is refused with one error that says what was wanted, what is free, who holds the rest and what would free
// it. Nothing is allocated here: whoever takes memory claims it first, and gives the claim back after the memory. Any thread.
//   MemoryLedger ledger(bytes); ledger.describe("models", "unload some");
//   MemoryLedger::Claim room = ledger.claim("models", owner, plan.bytes, "model 'a'"); ... room.release();
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

  // Room that is held until it is released, or destroyed. Moves, and keeps the ledger's books alive. One thread at a time.
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
  // Nothing where there is no room.
  std::optional<Claim> try_claim(const std::string& category, const std::string& key, std::int64_t bytes);
  // What frees memory of a category, for errors; those without are never named as a way out.
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
  std::vector<Holding> holdings() const;  // by category; those that hold nothing too, once they have held something
  [[noreturn]] void refuse(std::int64_t bytes, const std::string& what) const;

 private:
  std::shared_ptr<Books> books_;
};

// One pointer that holds a thing and its room: the room is given back when the last of its users has let go.
template <class T>
std::shared_ptr<const T> with_claim(std::shared_ptr<const T> thing, MemoryLedger::Claim&& room) {
  struct Both {
    MemoryLedger::Claim room;  // goes after the thing
    std::shared_ptr<const T> thing;
  };
  const auto both = std::make_shared<Both>(Both{std::move(room), std::move(thing)});
  return std::shared_ptr<const T>(both, both->thing.get());
}

// "1234.5 MB", of 2^20 bytes: the unit of the options that limit memory.
std::string megabytes_text(std::int64_t bytes);

}  // namespace lockstep
