// Times decoding of every type of GGUF blocks to fp32: millions of weights per second on one core, medians of rounds, with source and target in the
// cache. Blocks hold random bits. The first line is the processor.
//   ninja -C build gguf_decode && build/bench/gguf_decode [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/gguf_types.h"

namespace {
// Name, family and model, as the system tells them.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> wanted = {"model name", "cpu family", "model"};
  std::string text;
  for (std::string line; !wanted.empty() && std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (colon != line.npos && wanted.erase(key) > 0) text += (text.empty() ? "" : ", ") + key + line.substr(colon);
  }
  return text.empty() ? "a processor that tells no name" : text;
}
}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  constexpr std::int64_t kWeights = std::int64_t{1} << 16;  // at once: 256 KB of fp32
  constexpr int kTurns = 64;                                // of a round
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 21;
  std::mt19937 random(1);
  std::printf("%s\n", processor().c_str());
  std::printf("%-6s%16s%20s%10s%10s\n", "type", "bits a weight", "M weights a second", "least", "most");
  for (std::uint32_t id = 0; id < 64; ++id) {
    const GgufType* type = gguf_type(id);
    if (!type || !type->decode) continue;
    const std::int64_t blocks = kWeights / type->block_values;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(blocks * type->block_bytes));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    std::vector<float> values(kWeights);
    std::vector<double> speeds;
    for (int round = 0; round <= rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int turn = 0; turn < kTurns; ++turn) type->decode(bytes.data(), values.data(), blocks);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (round > 0) speeds.push_back(kWeights * kTurns / seconds / 1e6);  // the first is not counted
    }
    std::sort(speeds.begin(), speeds.end());
    std::printf("%-6s%16.4f%20.0f%10.0f%10.0f\n", std::string(type->name).c_str(), type->bits_a_weight(), speeds[speeds.size() / 2], speeds.front(),
                speeds.back());
  }
}
