// A model's table of rotary angles on its device, as far as forwards reach: a model whose context is a million positions has the first 4,096 rows of it before
// its first token, and 8 times as many each time that a forward reaches further. Values are those of model/rope_table.h whatever was there before. One thread.
//   RopeRows rows(device, facts.rope, max_positions); const View table = rows.up_to(batch.longest());
#pragma once
#include <vector>

#include "model/rope_table.h"
#include "tensor/device.h"

namespace lockstep {

class RopeRows {
 public:
  static constexpr std::int64_t kFirst = 4096, kGrowth = 8;
  RopeRows() = default;  // of a model that rotates nothing: no table
  // `most`: positions that there may ever be.
  RopeRows(Device& device, const RopeSpec& spec, std::int64_t most);
  // f32 [at least min(positions, most), rotary], for as long as this object is. None without a table.
  View up_to(std::int64_t positions);

 private:
  void make(std::int64_t rows);

  Device* device_ = nullptr;
  RopeSpec spec_;
  std::int64_t most_ = 0;
  std::vector<Buffer> tables_;  // the last one is the longest; a forward that is not over, and a tape, read those before it
};

}  // namespace lockstep
