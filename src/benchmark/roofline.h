// The limits of a machine by threads: the peak rate of fp32 multiply-adds and the best rate of reads from memory, and a file of them.
//   const Roofline roofline = read_roofline("roofline.json"); const double least = roofline.at(2).seconds(2e9, 1e6);
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep {

struct RooflinePoint {
  std::int64_t threads = 0;
  double gigaflops = 0;             // a multiply-add counts 2 (benchmark/arithmetic.h)
  double gigabytes_per_second = 0;  // 0: there was not enough memory to tell
  // The least time in which `flop` operations can be done and `bytes` be read from memory; 0: not known.
  double seconds(double flop, double bytes) const;
};

struct Roofline {
  std::string processor, isa;
  std::vector<RooflinePoint> points;
  // The point of that number of threads. Error not_found: none was measured.
  const RooflinePoint& at(std::int64_t threads) const;
};

nlohmann::ordered_json roofline_json(const Roofline& roofline);
// What roofline_json wrote. Errors: those of read_file; corrupt_file with what is wrong.
Roofline read_roofline(const std::filesystem::path& path);

}  // namespace lockstep
