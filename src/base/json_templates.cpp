#include "base/json_templates.h"

LOCKSTEP_JSON_TEMPLATES()
