// `lockstep grad`: gradients of the cross-entropy of given tokens, as a safetensors file.
#include <cstdio>

#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "service/score.h"

namespace lockstep {

int grad_command(const Arguments& arguments) {
  RuntimeSettings settings;
  settings.profile = "cpu-f32";
  std::string tokens, out;
  bool json = false;
  OptionTable table("grad",
                    "The gradient of the summed cross-entropy of given tokens with respect to every weight: fp32, "
                    "Hugging Face names; zeros for "
                    "the indexer, whose loss is another.",
                    {"lockstep grad --model models/countdown-glm --tokens sequences.jsonl --out grads.safetensors"});
  table.text("tokens", &tokens, "FILE", "JSON lines {\"tokens\":[1,5,7]}");
  table.require();
  table.text("out", &out, "FILE", "The safetensors file that is written");
  table.require();
  add_runtime_options(table, settings);
  add_ranks_option(table, &settings.ranks);
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  const GradientSummary summary = write_gradients(opened, read_sequences(opened, tokens, 2), out);
  if (json)
    std::printf("%s\n", nlohmann::ordered_json{{"out", out},
                                               {"loss", summary.loss},
                                               {"sequences", summary.sequences},
                                               {"tokens", summary.tokens},
                                               {"tensors", summary.tensors},
                                               {"profile", settings.profile}}
                            .dump()
                            .c_str());
  else
    std::printf("%s: %lld gradients of the cross-entropy %.9g, summed over %lld tokens of %lld sequences, profile %s\n",
                out.c_str(), static_cast<long long>(summary.tensors), summary.loss,
                static_cast<long long>(summary.tokens), static_cast<long long>(summary.sequences),
                settings.profile.c_str());
  return kExitOk;
}

}  // namespace lockstep
