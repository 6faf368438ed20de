package pgserver

const deathSignal = true
