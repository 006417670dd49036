#include "cli/option_help.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {
// Lines of at most `width` characters, cut at blanks, those after the first behind `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = end - at;
    if (column > indent && column + 1 + length > width) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += text.substr(at, length);
    column += length;
    at = end + 1;
  }
  return result;
}

struct HelpLine {
  std::string left, right;
};

HelpLine help_line(const Option& row) {
  std::vector<std::string> notes;
  if (row.is_required) notes.push_back("required");
  if (!row.default_text.empty()) notes.push_back("default " + row.default_text);
  if (!row.allowed.empty()) notes.push_back(row.allowed);
  for (const Option::Idle& idle : row.idle) notes.push_back("refused " + idle.where);
  return {row.spelled() + (row.placeholder.empty() ? "" : " " + row.placeholder),
          row.help + (notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; ")))};
}
}  // namespace

std::string help_json(const CommandAbout& about, const OptionRows& rows) {
  nlohmann::ordered_json json{{"command", rows.command()}, {"summary", about.summary}, {"options", nlohmann::ordered_json::array()}};
  for (const auto& row : rows.all()) {
    nlohmann::ordered_json option{{"name", row->spelled()}, {"value", row->placeholder}, {"help", row->help}, {"required", row->is_required}};
    if (!row->default_text.empty()) option["default"] = row->default_text;
    if (!row->allowed.empty()) option["allowed"] = row->allowed;
    if (!row->path.empty()) option["path"] = row->path;
    json["options"].push_back(std::move(option));
  }
  return json.dump() + "\n";
}

std::string help_text(const CommandAbout& about, const OptionRows& rows) {
  std::string text;
  for (const std::string& example : about.examples) text += "  " + example + "\n";
  text += "\n" + wrapped(about.summary, 0, 100) + "\n\n";
  std::vector<HelpLine> lines;
  std::for_each(rows.all().begin() + 1, rows.all().end(), [&](const auto& row) { lines.push_back(help_line(*row)); });
  if (about.config) {
    lines.push_back(
        {"--config FILE", "Settings from a TOML file: the names above, dashes or underscores; one that came along is found by its name (countdown_rl.toml)"});
    lines.push_back({"--set KEY=VALUE", "One such setting (may be repeated)"});
  }
  lines.push_back(help_line(*rows.all().front()));
  lines.push_back({"--help", "This text"});
  std::size_t width = 0;
  for (const HelpLine& line : lines) width = std::max(width, std::min<std::size_t>(line.left.size(), 28));
  for (const HelpLine& line : lines) {
    text += "  " + line.left;
    text += line.left.size() > width ? "\n" + std::string(width + 4, ' ') : std::string(width + 2 - line.left.size(), ' ');
    text += wrapped(line.right, width + 4, 110) + "\n";
  }
  return text;
}

}  // namespace lockstep
