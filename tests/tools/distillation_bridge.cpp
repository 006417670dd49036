// Divergences of a student from a teacher for tests in another language: one JSON line in, one out, or {"error"}.
//   {"divergence", "rest", "student", "teacher"}, log-probabilities of the same tokens                                        {"value", "slopes"}
//   {"divergence", "weights", "student", "student_head", "teacher", "teacher_head"}, hidden states and heads, lists of rows    {"losses", "states", "head"}
// The latter is the fused head: the rows' losses, which their weights are in, and the gradients by the student's states and head.
//   distillation_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "kernels/launch.h"
#include "losses/distillation.h"

namespace {
using namespace lockstep;
using Matrix = std::vector<std::vector<float>>;

std::vector<float> flat(const Matrix& rows) {
  std::vector<float> all;
  for (const std::vector<float>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// Panels [N/16][K][16] of a matrix [N, K], and back.
std::size_t in_panels(std::size_t n, std::size_t k, std::size_t inputs) { return (n / 16 * inputs + k) * 16 + n % 16; }
std::vector<float> to_panels(const Matrix& w) {
  const std::size_t inputs = w.at(0).size();
  std::vector<float> packed((w.size() + 15) / 16 * inputs * 16, 0.0f);
  for (std::size_t n = 0; n < w.size(); ++n)
    for (std::size_t k = 0; k < inputs; ++k) packed[in_panels(n, k, inputs)] = w[n].at(k);
  return packed;
}
Matrix to_rows(const std::vector<float>& packed, std::size_t outputs, std::size_t inputs) {
  Matrix w(outputs, std::vector<float>(inputs));
  for (std::size_t n = 0; n < outputs; ++n)
    for (std::size_t k = 0; k < inputs; ++k) w[n][k] = packed[in_panels(n, k, inputs)];
  return w;
}

nlohmann::json in_head(const nlohmann::json& request) {
  const auto matrix = [&](const char* name) { return request.at(name).get<Matrix>(); };
  const Matrix states = matrix("student"), head = matrix("student_head"), teacher_states = matrix("teacher"), teacher_head = matrix("teacher_head");
  const auto rows = std::ssize(states), vocabulary = std::ssize(head), inputs = std::ssize(head.at(0));
  constexpr std::int64_t kChunk = 3;
  Backend backend({.threads = 2});
  Device& device = backend.device();
  std::vector<Buffer> kept;
  const auto keep = [&](Buffer buffer) {
    kept.push_back(std::move(buffer));
    return kept.back().view();
  };
  const auto upload = [&](const auto& values, std::int64_t height) {
    return keep(device.upload(values, height, std::ssize(values) / height, MemoryCategory::workspace));
  };
  const auto room = [&](std::int64_t height, std::int64_t width) { return keep(device.allocate(DType::f32, height, width, MemoryCategory::workspace)); };
  const auto packed = [&](const Matrix& w) {
    PackedWeight weight;
    weight.data = upload(to_panels(w), 1);
    weight.outputs = std::ssize(w), weight.inputs = std::ssize(w.at(0));
    return weight;
  };
  HeadTeacher teacher;
  teacher.x = upload(flat(teacher_states), rows);
  teacher.w = packed(teacher_head);
  teacher.divergence = divergence_by_name(request.at("divergence").get<std::string>());
  teacher.log_sum = room(rows, 1), teacher.centre = room(rows, 1);
  HeadLoss loss;
  loss.x = upload(flat(states), rows);
  loss.w = packed(head);
  loss.target = upload(std::vector<std::int32_t>(states.size(), 1), rows);
  loss.objective.kind = LossKind::divergence;
  loss.objective.weight = upload(request.at("weights").get<std::vector<float>>(), rows);
  loss.logprob = room(rows, 1), loss.loss = room(rows, 1), loss.log_sum = room(rows, 1), loss.slope = room(rows, 1), loss.dx = room(rows, inputs);
  loss.logits_chunk = room(kChunk, vocabulary);
  HeadWeight weight;
  weight.gradient = room(1, loss.w.packed_size());
  weight.x = loss.x, weight.w = loss.w, weight.target = loss.target, weight.log_sum = loss.log_sum, weight.slope = loss.slope;
  weight.segment = upload(std::vector<std::int32_t>(states.size(), 0), rows);
  weight.teacher = teacher;
  teacher.logits_chunk = room(kChunk, vocabulary);
  loss.teacher = teacher;
  backend.launch(&KernelTable::head_loss, loss);
  backend.launch(&KernelTable::head_weight, weight);
  const auto read = [&](const View& view) { return backend.stream().read(view).get(); };
  const std::vector<float> dx = read(loss.dx);
  Matrix by_states;
  for (std::ptrdiff_t t = 0; t < rows; ++t) by_states.emplace_back(dx.begin() + t * inputs, dx.begin() + (t + 1) * inputs);
  return {{"losses", read(loss.loss)}, {"states", by_states}, {"head", to_rows(read(weight.gradient), head.size(), head[0].size())}};
}
}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const nlohmann::json request = nlohmann::json::parse(line);
      if (request.contains("student_head")) {
        answer = in_head(request);
      } else {
        const auto student = request.at("student").get<std::vector<float>>(), teacher = request.at("teacher").get<std::vector<float>>();
        std::vector<double> slopes(student.size());
        const DistillationSettings settings{.kind = divergence_by_name(request.at("divergence").get<std::string>()), .rest = request.at("rest")};
        const double value = divergence(settings, student, teacher, slopes);
        answer = {{"value", value}, {"slopes", slopes}};
      }
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
