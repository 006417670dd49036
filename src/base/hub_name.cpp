#include "base/hub_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"

namespace lockstep {
namespace {
bool is_part(std::string_view part) {
  return !part.empty() && std::isalnum(static_cast<unsigned char>(part[0])) &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}
}  // namespace

void refuse_hub_name(const std::string& model) {
  const std::size_t slash = model.find('/');
  if (slash == std::string::npos || !is_part(std::string_view(model).substr(0, slash)) || !is_part(std::string_view(model).substr(slash + 1))) return;
  std::error_code error;
  if (std::filesystem::exists(model.substr(0, slash), error)) return;
  const std::string folder = "models/" + model.substr(slash + 1);
  fail(ErrorCode::not_found, "there is no folder '{}': a model is a folder on this machine. A hub's model of that name becomes one with `pip install huggingface_hub` and `hf download {} --local-dir {}`; then the model is {}",
       model, model, folder, folder);
}

}  // namespace lockstep
