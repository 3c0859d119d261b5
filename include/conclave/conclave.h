// Everything a program needs that runs models.
#pragma once

#include "conclave/error.h"
#include "conclave/generate.h"
#include "conclave/model.h"
#include "conclave/sampling.h"
#include "conclave/session.h"
#include "conclave/text.h"
