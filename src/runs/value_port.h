// The interface through which a critic is evaluated and trained: values of states, and steps towards their returns. Implemented in this process
// (runs/local_critic.h); nothing here knows a transport, a trainer or text. One thread at a time.
//   const std::vector<std::vector<float>> values = port.values(data); port.forward_backward(data, 0.2); port.optim_step({});
#pragma once
#include <cstdint>
#include <vector>

#include "runs/trainer_port.h"

namespace lockstep {

// One sequence: row i is the state behind tokens[i]. All vectors but `tokens` have one entry per row; those that a call does not need may be empty.
struct ValueDatum {
  std::vector<std::int32_t> tokens;
  std::vector<float> weights;  // 0: no value is needed, and none is trained
  std::vector<float> returns;  // targets of the values
  std::vector<float> values;   // values at the time the returns were computed
};

struct ValueResult {
  double loss = 0;        // the mean over trained rows
  double held = 0;        // share of trained rows whose value was clipped
  std::int64_t rows = 0;  // computed
};

class ValuePort {
 public:
  virtual ~ValuePort() = default;
  // By sequence and row; 0 where the weight is 0. No gradient.
  virtual std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) = 0;
  // Half the square of value - return (kernels/value/value.h), clipped around the old values where `clip` is above 0.
  virtual ValueResult forward_backward(const std::vector<ValueDatum>& data, double clip) = 0;
  // Returns the gradient norm.
  virtual double optim_step(const OptimizerStep& step) = 0;
};

}  // namespace lockstep
