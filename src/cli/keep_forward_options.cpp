#include "cli/keep_forward_options.h"

#include <fmt/format.h>

namespace lockstep {

void add_keep_forward_options(OptionTable& table, KeepForwardSettings& settings, const std::string& whose, const std::function<void()>& after) {
  const auto off = [&settings] { return !settings.on(); };
  const auto row = [&](bool refused) {
    if (after) after();
    if (refused) table.refused("with --keep-forward off", off);
  };
  table.choice("keep-forward", &settings.mode, keep_forward_modes(),
               fmt::format("What is kept of the {} forward for training: inputs, what enters each layer, from which a backward recomputes; all, what a forward "
                           "of training would compute; changes no bit",
                           whose));
  row(false);
  table.integer("keep-forward-megabytes", &settings.megabytes, 1, 1 << 24, "N", "Memory of what is kept; what finds no room is computed again");
  row(true);
  table.integer("verify-kept", &settings.verify_every, 0, 1'000'000'000, "N",
                "Compare one kept row in N with what is computed, and fail before anything is learned from a different bit; 0: none");
  row(true);
}

}  // namespace lockstep
