// A SwiGLU MLP: down(silu(gate h) * (up h)). Key: intermediate_size.
//   const auto mlp = Mlp::read(model->reader(), {}, model->facts().hidden); auto block = std::make_unique<Mlp>(manifest, "model.layers.0.mlp.", mlp);
#pragma once
#include "model/blocks/block.h"
#include "model/config_reader.h"

namespace lockstep {

class Mlp final : public FeedForwardBlock {
 public:
  // Tensor names after the block's prefix.
  struct Traits {
    std::string gate = "gate_proj.weight", up = "up_proj.weight", down = "down_proj.weight";
  };
  struct Settings {
    std::int64_t hidden = 0, width = 0;
    Traits traits;
  };
  static Settings read(const ConfigReader& config, const Traits& traits, std::int64_t hidden) {
    return {hidden, config.integer("intermediate_size", 1, kLargestDimension), traits};
  }

  Mlp(Manifest& manifest, const std::string& prefix, const Settings& settings);
  Tensor forward(Context& ctx, const Tensor& h) const override;
  RowCost row_cost() const override { return cost_; }
  // Of the SwiGLU's product, which is computed again, gate and up, and a gradient of each two of them at a time.
  static constexpr std::int64_t kValuesOfWidth = 5;

 private:
  ParameterId gate_, up_, down_;
  RowCost cost_;
};

}  // namespace lockstep
