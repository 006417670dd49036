#define TOML_ENABLE_FORMATTERS 0
#include "jobs/teacher_file.h"

#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostBytes = std::size_t{1} << 20, kMostTeachers = 256;
const std::vector<std::string> kKeys = {"name", "folder", "adapter", "domains", "weight"};

[[noreturn]] void fault(const toml::node& at, const std::string& what) { fail(ErrorCode::invalid_argument, "line {}: {}", at.source().begin.line, what); }

TeacherSettings teacher_of(const toml::node& node, const std::filesystem::path& beside) {
  const toml::table* table = node.as_table();
  if (!table) fault(node, "a teacher is no table, allowed is [[teacher]]");
  TeacherSettings teacher;
  const auto text = [&](const char* key) -> std::string {
    const toml::node* value = table->get(key);
    if (!value) return {};
    if (!value->is_string()) fault(*value, fmt::format("'{}' is no text", key));
    return value->as_string()->get();
  };
  const auto folder = [&](const char* key) {
    const std::string path = text(key);
    return path.empty() || std::filesystem::path(path).is_absolute() ? path : (beside / path).lexically_normal().string();
  };
  teacher.name = text("name");
  teacher.folder = folder("folder");
  teacher.adapter = folder("adapter");
  if (const toml::node* weight = table->get("weight")) {
    const auto number = weight->value<double>();
    if (!number) fault(*weight, "'weight' is no number");
    teacher.weight = *number;
  }
  if (const toml::node* domains = table->get("domains")) {
    if (!domains->is_array()) fault(*domains, "'domains' is no list of texts");
    for (const toml::node& one : *domains->as_array()) {
      if (!one.is_string()) fault(one, "'domains' is no list of texts");
      teacher.domains.push_back(one.as_string()->get());
    }
  }
  for (const auto& [key, value] : *table)
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end())
      fault(value,
            fmt::format("unknown key '{}', allowed are {}{}", std::string(key.str()).substr(0, 60), fmt::join(kKeys, ", "), did_you_mean(key.str(), kKeys)));
  if (teacher.folder.empty() && teacher.adapter.empty()) fault(node, "a teacher has no folder and no adapter, allowed is at least one");
  return teacher;
}
}  // namespace

std::vector<TeacherSettings> read_teacher_file(const std::filesystem::path& path) {
  return with_context(fmt::format("reading '{}'", path.string()), [&] {
    const std::string content = read_file(path, kMostBytes);
    toml::table root;
    try {
      root = toml::parse(content);
    } catch (const toml::parse_error& e) {
      fail(ErrorCode::invalid_argument, "line {}, column {}: {}", e.source().begin.line, e.source().begin.column, e.description());
    }
    std::vector<TeacherSettings> teachers;
    for (const auto& [key, node] : root) {
      if (key.str() != "teacher" || !node.is_array())
        fault(node, fmt::format("unknown key '{}', allowed are tables [[teacher]]", std::string(key.str()).substr(0, 60)));
      for (const toml::node& one : *node.as_array()) teachers.push_back(teacher_of(one, path.parent_path()));
    }
    if (teachers.empty() || teachers.size() > kMostTeachers)
      fail(ErrorCode::invalid_argument, "it has {} tables [[teacher]], allowed are 1 to {}", teachers.size(), kMostTeachers);
    return teachers;
  });
}

}  // namespace lockstep
