// Divergences of a student from a teacher for tests in another language: one JSON line {"divergence", "rest", "student", "teacher"} in, log-probabilities
// of the same tokens; one with {"value", "slopes"} out, or {"error"}.
//   distillation_bridge < requests
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "losses/distillation.h"

int main() {
  using namespace lockstep;
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      const nlohmann::json request = nlohmann::json::parse(line);
      const auto student = request.at("student").get<std::vector<float>>(), teacher = request.at("teacher").get<std::vector<float>>();
      std::vector<double> slopes(student.size());
      const DistillationSettings settings{.kind = divergence_by_name(request.at("divergence").get<std::string>()), .rest = request.at("rest")};
      const double value = divergence(settings, student, teacher, slopes);
      answer = {{"value", value}, {"slopes", slopes}};
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << "\n" << std::flush;
  }
}
