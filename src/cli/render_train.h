// What `lockstep render --train FILE` shows: the tokens of each line of training data, and which of them are learned. One thread.
#pragma once
#include <string>

namespace lockstep {

struct ShownTrainingData {
  std::string model, template_file, file, end_token;
  bool json = false;  // one object a line: line, tokens, weights, pieces
};
int show_training_data(const ShownTrainingData& wanted);

}  // namespace lockstep
