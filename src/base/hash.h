// Hashes: SHA-256 for what is published (weights, files), XXH3-64 for rows of bits and cache keys, XXH3-128 for tensors in transfers.
//   Sha256 hash; hash.update("abc"); const std::string digest = hash.hex(); const std::uint64_t key = xxh3("abc", 3);
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  void update(const void* data, std::size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // finishes; call once

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string sha256_hex(std::string_view data);

std::uint64_t xxh3(const void* data, std::size_t bytes, std::uint64_t seed = 0);
std::string hex64(std::uint64_t value);  // 16 lower-case digits
// XXH3-128 with seed 0, as 32 lower-case digits: what `xxh128sum` prints. Not collision-resistant against an attacker.
std::string xxh3_128_hex(const void* data, std::size_t bytes);

}  // namespace lockstep
