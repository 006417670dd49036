// What an export of a trained model needs beside the weights (LocalTrainer::export_to). Plain values.
#pragma once
#include <string>

#include "base/output_path.h"
#include "model/weights.h"

namespace lockstep {

struct TrainedExport {
  std::string base;           // the folder that training started from: named in an adapter's config, and the source of tokenizer files
  bool tokenizer = true;      // it has one
  DType dtype = DType::bf16;  // of all parameters; an adapter is fp32
  bool merged = false;        // of an adapter: the whole model with it, each weight rounded once, for programs that have no head for it to stand over
  Overwrite overwrite = Overwrite::no;
  // The trained layer of multi-token prediction; null: the files' own. Beside an adapter, whose folder has no place for it, it is exported in a copy of the
  // base's folder, `base` in the adapter's.
  const WeightImages* mtp = nullptr;
};

}  // namespace lockstep
