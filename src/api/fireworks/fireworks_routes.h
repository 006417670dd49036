// The routes of the Fireworks training SDK beside the training protocol that it shares with Tinker (api/tinker): completions of its
// sampler, hot load of snapshots into deployments, and the control plane (accounts, training shapes, jobs, deployments, checkpoints,
// promotion, models, serverless sessions). Knows no socket. Any thread.
//   add_fireworks_routes(routes, service, ShapeCatalog::published());
#pragma once
#include "api/fireworks/resource_names.h"
#include "api/tinker/training_routes.h"
#include "planning/shape_catalog.h"

namespace lockstep {

class HeldStreams;

// `shapes`: those that clients may resolve, beside those of the base on this machine. `streams`: those of OpenAI's routes; null: none is held.
void add_fireworks_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes,
                          const std::shared_ptr<HeldStreams>& streams = nullptr);

// The parts, one file each.
void add_completion_routes(TrainingRoutes& routes, const std::shared_ptr<HeldStreams>& streams);
void add_hot_load_routes(TrainingRoutes& routes, const std::shared_ptr<FleetPort>& fleet);
void add_shape_routes(TrainingRoutes& routes, const std::shared_ptr<const ShapeCatalog>& shapes);
void add_job_routes(TrainingRoutes& routes, const std::shared_ptr<const ShapeCatalog>& shapes);
void add_promotion_routes(TrainingRoutes& routes);
void add_serverless_routes(TrainingRoutes& routes);

// --- functions that several parts use; those of resource_names.h for calls
std::string path_segment(const TrainingCall& call, std::string_view name, std::string_view without = {});
std::string resource_name(const TrainingCall& call, std::string_view collection, const std::string& id);
void answer_conflict(const TrainingCall& call, const std::string& message);
void answer_page(const TrainingCall& call, const char* field, const TrainingJson& rows);
bool query_flag(const TrainingCall& call, std::string_view name);
// Error not_found: the name is neither the base's nor a promoted model's.
void check_base_model(const TrainingCall& call, const std::string& name);
void check_base_model(TrainingService& service, const std::string& owner, const std::string& name);
// A checkpoint as control planes list it; `parent`: the job's or session's name.
TrainingJson checkpoint_row(const std::string& parent, const CheckpointRecord& record);

}  // namespace lockstep
