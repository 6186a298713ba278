package api

func validateFelix(r *FelixConfiguration) FieldErrors { return nil }

const maxName = 253
