// `lockstep grad`: gradients of a loss over given tokens, as a safetensors file.
#include <cstdio>

#include "base/file.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "parity/score.h"

namespace lockstep {

int grad_command(const Arguments& arguments) {
  RuntimeSettings settings;
  settings.profile = "cpu-f32";
  std::string tokens, out, loss_name = "cross_entropy", rows;
  std::vector<std::string> config;
  bool json = false;
  OptionTable table("grad",
                    "Writes the gradient of a loss over given tokens with respect to every weight: fp32, Hugging Face names; zeros for the indexer, "
                    "which has another loss. Losses are sums unless averaging says otherwise (docs/losses.md).",
                    {"lockstep grad --model models/countdown-glm --tokens sequences.jsonl --out grads.safetensors",
                     "lockstep grad --model DIR --tokens rollouts.jsonl --out g.safetensors --loss ppo --loss-config clip_high_threshold=1.28"});
  table.input("tokens", &tokens, "FILE", "JSON lines {\"tokens\":[1,5,7]}; with targets, weights, advantages, logprobs and whatever else the loss needs")
      .required();
  table.output_file("out", &out, "The safetensors file to write").required();
  std::vector<std::string> losses = loss_names();
  losses.emplace_back(kValueLossName);
  table.choice("loss", &loss_name, losses, "The loss; value: of a model with a value head");
  table.texts("loss-config", &config, "KEY=VALUE", "An option of the loss");
  table.output_file("rows", &rows, "Also write one JSON line per sequence: logprobs, losses, entropies");
  add_runtime_options(table, settings);
  add_ranks_option(table, &settings.ranks);
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  const LossConfig read = read_loss_config(config);
  const LossOptions loss = loss_name == kValueLossName ? value_loss(read) : loss_by_name(loss_name, read);
  const OpenedModel opened = open_model(settings);
  const GradientSummary summary = write_gradients(opened, read_loss_sequences(opened, tokens), loss, check_output_file(out, table.overwrite()));
  if (!rows.empty()) {
    AtomicFile file(check_output_file(rows, table.overwrite()));
    for (std::size_t s = 0; s < summary.result.logprobs.size(); ++s) {
      file.write(to_json_line(summary.result, s) + "\n");
    }
    file.commit();
  }
  if (json) {
    nlohmann::ordered_json metrics;
    for (const auto& [name, value] : summary.result.metrics) metrics[name] = value;
    std::printf("%s\n", nlohmann::ordered_json{{"out", out},
                                               {"loss", summary.loss},
                                               {"sequences", summary.sequences},
                                               {"tokens", summary.tokens},
                                               {"tensors", summary.tensors},
                                               {"metrics", metrics},
                                               {"profile", settings.profile}}
                            .dump()
                            .c_str());
  } else {
    std::printf("%s: %lld gradients of the loss %s, %.9g, over %lld targets of %lld sequences, profile %s\n", out.c_str(),
                static_cast<long long>(summary.tensors), loss_name.c_str(), summary.loss, static_cast<long long>(summary.tokens),
                static_cast<long long>(summary.sequences), settings.profile.c_str());
  }
  return kExitOk;
}

}  // namespace lockstep
