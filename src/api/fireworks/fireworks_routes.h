// The routes of the Fireworks training SDK beside the training protocol that it shares with Tinker (api/tinker): completions of its
// sampler, hot load of snapshots into deployments, and the control plane (accounts, training shapes, jobs, deployments, checkpoints,
// promotion, models, serverless sessions). Knows no socket. Any thread.
//   add_fireworks_routes(routes, service, ShapeCatalog::published());
#pragma once
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
void add_deployment_routes(TrainingRoutes& routes);
void add_promotion_routes(TrainingRoutes& routes);
void add_serverless_routes(TrainingRoutes& routes);

// --- functions that several parts use
// A parameter of the path; `without`: a custom verb (":promote" of "c:promote") to remove from its end. Error not_found if it is missing.
std::string path_segment(const TrainingCall& call, std::string_view name, std::string_view without = {});
std::string resource_name(const TrainingCall& call, std::string_view collection, const std::string& id);
// A 409, which create calls of the SDK take as "it is there".
void answer_conflict(const TrainingCall& call, const std::string& message);
// Error not_found: the name is neither the base's nor a promoted model's.
void check_base_model(const TrainingCall& call, const std::string& name);
// One page of rows below `field`, by pageSize and pageToken.
void answer_page(const TrainingCall& call, const char* field, const TrainingJson& rows);
std::vector<std::string> page_query();  // the names of the query that it reads
// ?name=true or false; false where it is absent.
bool query_flag(const TrainingCall& call, std::string_view name);
// A checkpoint as control planes list it; `parent`: the job's or session's name.
TrainingJson checkpoint_row(const std::string& parent, const CheckpointRecord& record);

}  // namespace lockstep
