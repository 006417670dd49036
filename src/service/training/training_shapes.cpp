#include "service/training/training_shapes.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {
std::vector<TrainingShape> make_shapes() {
  const char* b200 = "NVIDIA_B200_180GB";
  std::vector<TrainingShape> shapes = {
      {"qwen3p5-397b-a17b-262k", "Qwen3.5 397B-A17B", "MoE", "POLICY_TRAINER", 262144, b200, 32},
      {"qwen3p5-35b-a3b-262k", "Qwen3.5 35B-A3B", "MoE", "POLICY_TRAINER", 262144, b200, 8},
      {"qwen3-235b-128k", "Qwen3 235B", "MoE", "POLICY_TRAINER", 131072, b200, 16},
      {"qwen3-32b-65k", "Qwen3 32B", "dense", "POLICY_TRAINER", 65536, b200, 8},
      {"qwen3-30b-a3b-128k", "Qwen3 30B-A3B", "MoE", "POLICY_TRAINER", 131072, b200, 8},
      {"qwen3-8b-128k", "Qwen3 8B", "dense", "POLICY_TRAINER", 128000, b200, 4},
      {"qwen3-vl-8b-65k", "Qwen3 VL 8B", "dense, vision-language", "POLICY_TRAINER", 65536, "NVIDIA_H200_141GB", 4},
      {"kimi-k2p5-256k", "Kimi K2.5", "MoE", "POLICY_TRAINER", 262144, b200, 64},
      {"kimi-k2p5-lora-256k", "Kimi K2.5", "MoE", "LORA_TRAINER", 262144, "NVIDIA_B300_288GB", 8},
      {"llama-v3p3-70b-128k", "Llama 3.3 70B", "dense", "POLICY_TRAINER", 131072, b200, 8},
      {"minimax-m2p5-192k", "MiniMax M2.5", "MoE", "POLICY_TRAINER", 196608, b200, 16},
      {"nemotron-3-super-120b-128k", "Nemotron 3 Super 120B", "hybrid Mamba-MoE", "POLICY_TRAINER", 131072, b200, 16},
      {"nemotron-nano-3-30b-a3b-262k", "Nemotron Nano 3 30B-A3B", "hybrid Mamba-MoE", "POLICY_TRAINER", 262144, b200, 8},
  };
  for (std::size_t i = 0, rows = shapes.size(); i < rows; ++i) {
    if (shapes[i].mode != "POLICY_TRAINER") continue;
    TrainingShape reference = shapes[i];
    reference.id += "-reference";
    reference.mode = "FORWARD_ONLY";
    shapes.push_back(reference);
  }
  return shapes;
}
}  // namespace

const std::vector<TrainingShape>& training_shapes() {
  static const std::vector<TrainingShape> shapes = make_shapes();
  return shapes;
}

const TrainingShape& training_shape(const std::string& id) {
  std::vector<std::string> ids;
  for (const TrainingShape& shape : training_shapes()) {
    if (shape.id == id) return shape;
    ids.push_back(shape.id);
  }
  fail(ErrorCode::not_found, "there is no training shape '{}'{}", id, did_you_mean(id, ids));
}

}  // namespace lockstep
