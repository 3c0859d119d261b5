// Everything a program needs that runs models.
#pragma once

#include "conclave/error.h"
#include "conclave/model.h"
#include "conclave/session.h"
