#include "api/openai/answer.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

void ChoiceDelta::append(ChoiceDelta&& next) {
  reasoning += next.reasoning;
  content += next.content;
  for (ToolCallDelta& call : next.tool_calls) {
    const auto known = std::find_if(tool_calls.begin(), tool_calls.end(), [&](const ToolCallDelta& c) { return c.index == call.index; });
    if (known == tool_calls.end()) {
      tool_calls.push_back(std::move(call));
      continue;
    }
    known->id += call.id;
    known->name += call.name;
    known->arguments += call.arguments;
  }
  if (tokens.empty()) tokens = std::move(next.tokens);
  else std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(tokens));
  if (!next.finish.empty()) finish = std::move(next.finish);
}

}  // namespace lockstep
