// Any bytes as a traced loss: as JSON where they begin with '{', else as draws that make a graph of the operations there are. It runs
// to finite numbers, or is refused as a fault of the client's.
// sources: src/losses/*.cpp
#include <cstdint>
#include <string_view>

#include "losses/graph_test_tools.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  if (size > 0 && data[0] == '{') {
    const auto json = nlohmann::ordered_json::parse(std::string_view(reinterpret_cast<const char*>(data), size), nullptr, false);
    if (json.is_object() && json.contains("inputs") && json.contains("graph")) run_graph(json["inputs"], json["graph"]);
  } else {
    run_graph(graph_test_inputs(), GraphDraws({data, size}).graph());
  }
  return 0;
}
