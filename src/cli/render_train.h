// `lockstep render --train FILE`: prints the tokens of each line of training data, and which of them are trained. One thread.
//   show_training_data({.model = "models/m", .file = "my.jsonl"});
#pragma once
#include <string>

namespace lockstep {

struct ShownTrainingData {
  std::string model, template_file, file, end_token;
  bool json = false;  // one object per line: line, tokens, weights, pieces
};
int show_training_data(const ShownTrainingData& wanted);

}  // namespace lockstep
